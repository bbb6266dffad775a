export { init } from 'echarts/core.js';
import { use } from 'echarts/core.js';
import { BarChart, CustomChart } from 'echarts/charts.js';
import { GridComponent, TooltipComponent, DataZoomComponent } from 'echarts/components.js';
import { CanvasRenderer } from 'echarts/renderers.js';
use([BarChart, CustomChart, GridComponent, TooltipComponent, DataZoomComponent, CanvasRenderer]);
